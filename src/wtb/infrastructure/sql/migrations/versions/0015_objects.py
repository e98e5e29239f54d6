"""Objects: the contents of large files can lie in the database, or in S3 with a row here that says where."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "wtb_objects",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Text),
        sa.Column("touched_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "wtb_object_contents",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("wtb_object_contents")
    op.drop_table("wtb_objects")
