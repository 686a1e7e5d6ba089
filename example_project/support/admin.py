"""The support desk in the admin."""

from django.contrib import admin

from example_project.support import models


@admin.register(models.Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ["name", "email"]
    search_fields = ["name", "email"]


@admin.register(models.Ticket)
class TicketAdmin(admin.ModelAdmin):
    list_display = ["pk", "subject", "customer", "status", "priority", "opened_at"]
    list_display_links = ["pk", "subject"]
    list_filter = ["status", "priority"]
    list_select_related = ["customer"]
    search_fields = ["=pk", "subject", "customer__name"]
    autocomplete_fields = ["customer"]
