"""The site's URLs: a home page, the admin, and A2A."""

from django.contrib import admin
from django.contrib.staticfiles.urls import staticfiles_urlpatterns
from django.urls import include, path

from example_project.support import views

urlpatterns = [
    path("", views.home, name="home"),
    path("admin/", admin.site.urls),
    path("", include("a2a_django.urls")),
]
# With DEBUG only, and for daphne started by hand: `runserver` does this by itself.
urlpatterns += staticfiles_urlpatterns()
