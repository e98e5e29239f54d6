"""Imports what is otherwise imported on first use, which every fork of a worker would have to do again."""

import alembic.command  # noqa: F401
import psycopg  # noqa: F401

import wtb.infrastructure.sql.postgres
import wtb.infrastructure.sql.schema
import wtb.infrastructure.sql.sqlite
import wtb.infrastructure.sql.unit_of_work  # noqa: F401
from wtb.infrastructure.conditions.cel import CelConditions

CelConditions().compile("x < 1")
