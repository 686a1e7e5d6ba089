"""The example site as people see it: daphne, SQLite, a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.acceptance import sites
from tests.acceptance.sites import Site

# Chromium looks for its maker's servers otherwise, and waits for them.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
]
SECONDS = 20


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The example site with its demo and a superuser."""
    seeded = sites.seeded(tmp_path_factory.mktemp("seeded"))
    with sites.embedded(tmp_path_factory.mktemp("site"), seeded) as made:
        made.set(DEBUG="True")  # serves the static files
        made.serve("daphne")
        yield made


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A headless Chromium."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        pytest.skip("chromium and chromedriver are not installed")
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    made = Chrome(options, ChromeService(driver))
    try:
        yield made
    finally:
        made.quit()


@pytest.fixture
def browser(chrome: Chrome, site: Site, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Browser"]:
    """The browser, logged out; screenshots go where SCREENSHOTS says."""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    chrome.get(site.url)
    chrome.delete_all_cookies()
    browser = Browser(chrome, site.url, folder)
    yield browser
    browser.shoot(request.node.name)


class Browser:
    """What a person does with it."""

    def __init__(self, chrome: Chrome, url: str, folder: Path) -> None:
        self.chrome, self._url, self._folder = chrome, url, folder

    def open(self, path: str) -> None:
        """Goes to a page of the site."""
        self.chrome.get(self._url + path)

    def find(self, css: str) -> WebElement:
        """The element that `css` selects, as soon as it is there."""
        return WebDriverWait(self.chrome, SECONDS).until(lambda chrome: chrome.find_element(By.CSS_SELECTOR, css))

    def all(self, css: str) -> list[WebElement]:
        """Every such element."""
        return self.chrome.find_elements(By.CSS_SELECTOR, css)

    def fill(self, **values: str) -> None:
        """Writes into fields by their names."""
        for name, value in values.items():
            field = self.find(f'[name="{name}"]')
            field.clear()
            field.send_keys(value)

    def press(self, css: str) -> None:
        """Clicks a button that leads to another page, and waits for it."""
        old = self.find("html")
        self.find(css).click()
        WebDriverWait(self.chrome, SECONDS).until(lambda _: _is_gone(old))

    def log_in(self) -> None:
        """As the superuser."""
        self.open("/admin/login/?next=/admin/")
        self.fill(username="root", password="secret")
        self.press("[type=submit]")
        self.find("#user-tools")

    @property
    def text(self) -> str:
        """What the page says."""
        return self.find("body").text

    @property
    def complaints(self) -> list[str]:
        """What the browser's console has to say against the pages so far."""
        severe = [entry["message"] for entry in self.chrome.get_log("browser") if entry["level"] == "SEVERE"]
        return [message for message in severe if "favicon.ico" not in message]

    def shoot(self, name: str) -> None:
        """Keeps a picture of the whole page."""
        self.chrome.set_window_size(1280, 1000)
        height = self.chrome.execute_script("return document.documentElement.scrollHeight")
        self.chrome.set_window_size(1280, min(max(height, 800), 4000))
        self.chrome.save_screenshot(str(self._folder / f"{name}.png"))


def _is_gone(element: WebElement) -> bool:
    try:
        return not element.is_enabled()
    except StaleElementReferenceException:
        return True
    except WebDriverException:  # asked while the browser goes from one page to the other, it may not know
        return False
