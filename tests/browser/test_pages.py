"""Home page and admin in a real browser."""

import httpx
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.acceptance.clients import body
from tests.acceptance.sites import HEADERS


def post(site, agent, text):
    """The task that a call of `agent` brings forth."""
    url = f"{site.url}/a2a/{agent}/message:send"
    response = httpx.post(url, json=body(text), headers=HEADERS, timeout=20, verify=False)
    assert response.status_code == 200, response.text
    return response.json()["task"]


def test_the_home_page_lists_the_agents(browser, site):
    browser.open("/")
    assert {"echo", "tickets", "report"} <= {article.get_attribute("id") for article in browser.all("main article")}
    echo = browser.find("#echo")
    assert "curl -N -H 'A2A-Version: 1.0'" in echo.find_element(By.TAG_NAME, "pre").text
    link = echo.find_element(By.CSS_SELECTOR, "dd a").get_attribute("href")
    assert httpx.get(link, verify=False).json()["name"] == "Echo"
    assert not browser.complaints


def test_staff_create_an_agent_that_then_answers(browser, site):
    browser.log_in()
    browser.open("/admin/a2a_django/agent/add/")
    browser.fill(name="Parrot", slug="parrot", description="Repeats what it hears.")
    executor = Select(browser.find("[name=executor]"))
    assert {"echo", "tickets", "report"} <= {option.get_attribute("value") for option in executor.options}
    executor.select_by_value("echo")
    Select(browser.find("[name=anonymous_access]")).select_by_value("shared")
    if not browser.all('[name="skills-0-name"]'):
        browser.find("#skills-group .add-row a").click()
    skill = {"skill_id": "repeat", "name": "Repeat", "description": "Says it again.", "tags": "birds, speech"}
    browser.fill(**{f"skills-0-{name}": value for name, value in skill.items()})
    browser.shoot("add_agent")
    browser.press("[name=_save]")
    assert "was added successfully" in browser.text, browser.text
    card = httpx.get(f"{site.url}/a2a/parrot/.well-known/agent-card.json", verify=False).json()
    assert [(skill["id"], skill["tags"]) for skill in card["skills"]] == [("repeat", ["birds", "speech"])]
    task = post(site, "parrot", "Polly wants a cracker")
    assert task["artifacts"][0]["parts"] == [{"text": "Polly wants a cracker"}]
    assert not browser.complaints


def test_a_task_page_shows_the_whole_task(browser, site):
    task = post(site, "script", "work; chunks 3; ask <b>Which</b> one?")
    browser.log_in()
    browser.open("/admin/a2a_django/task/")
    browser.press(f"#result_list a[href*='{task['id']}']")
    for words in ("work; chunks 3", "<b>Which</b> one?", "input required", "chunks", "done"):
        assert words.lower() in browser.text.lower(), words
    assert not browser.all("[name=_save]")
    assert not browser.complaints


def test_staff_publish_a_card_and_roll_it_back(browser, site):
    def served():
        return httpx.get(f"{site.url}/a2a/report/.well-known/agent-card.json", verify=False).json()["version"]

    browser.log_in()
    for version in ("1.0.1", "2.0.0"):
        browser.open("/admin/a2a_django/agent/?q=report")
        browser.press("#result_list .field-slug a")
        browser.fill(version=version)
        browser.press("[name=_continue]")
        browser.press(".field-published a[href$='/publish/']")
        browser.shoot(f"publish_{version}")
        browser.press("#content [value=Publish]")
        assert "is served from now on" in browser.text, browser.text
        assert served() == version
    browser.open("/admin/a2a_django/agentcardversion/")
    browser.press("#result_list tr:nth-child(2) .field-number a")
    browser.shoot("card_version")
    browser.open("/admin/a2a_django/agentcardversion/")
    browser.find("#result_list tr:nth-child(2) .action-select").click()
    Select(browser.find("[name=action]")).select_by_value("roll_back")
    browser.press(".actions [type=submit]")
    browser.shoot("roll_back")
    assert '- "version": "2.0.0"' in " ".join(browser.text.split())
    browser.press("#content [value='Roll back']")
    assert served() == "1.0.1"
    assert not browser.complaints
