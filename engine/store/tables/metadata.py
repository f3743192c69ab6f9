"""What every table shares: names by convention, ids that sort by time, times with zone, one project."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, DateTime, ForeignKey, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from uuid_utils.compat import uuid7

NAMES = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def new_id() -> uuid.UUID:
    """A UUID version 7: sorts by the time it was made."""
    return uuid7()


Id = Annotated[uuid.UUID, mapped_column(primary_key=True, default=new_id)]
Nanoseconds = Annotated[int, mapped_column(BigInteger)]
CreatedAt = Annotated[datetime, mapped_column(server_default=func.clock_timestamp())]


class Table(DeclarativeBase):
    """Declared tables; `Table.metadata` is what migrations are held against."""

    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: DateTime(timezone=True),
        str: Text,
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        list[str]: JSONB,
    }


class InProject:
    """A row that belongs to one project."""

    project_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("projects.id"), index=True)
