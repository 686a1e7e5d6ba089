"""A user without groups and permissions, called by its e-mail address, whose key is no number."""

from uuid import uuid4

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models


class Person(AbstractBaseUser):
    """No `username`, no `is_active` column, no PermissionsMixin."""

    id = models.UUIDField(primary_key=True, default=uuid4)
    email = models.EmailField(unique=True)

    objects = BaseUserManager()

    USERNAME_FIELD = "email"
