"""What a support desk keeps: customers and their tickets."""

from django.db import models
from django.utils import timezone


class Customer(models.Model):
    """Somebody who may open tickets."""

    name = models.CharField(max_length=200)
    email = models.EmailField(unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Ticket(models.Model):
    """One problem of one customer; its primary key is the number that people quote."""

    class Status(models.TextChoices):
        OPEN = "open", "open"
        WAITING = "waiting", "waiting for the customer"
        CLOSED = "closed", "closed"

    class Priority(models.IntegerChoices):
        LOW = 1, "low"
        NORMAL = 2, "normal"
        HIGH = 3, "high"

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="tickets")
    subject = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    priority = models.PositiveSmallIntegerField(choices=Priority.choices, default=Priority.NORMAL)
    opened_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-priority", "opened_at"]
        indexes = [models.Index(fields=["status", "-priority", "opened_at"], name="support_ticket_by_status")]

    def __str__(self) -> str:
        return f"Ticket {self.pk}: {self.subject}"
