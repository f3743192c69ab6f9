"""retrain schedules

Revision: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.alter_column("schedules", "every_s", existing_type=sa.Integer(), nullable=True)
    op.add_column("schedules", sa.Column("cron", sa.Text(), nullable=True))
    op.add_column("schedules", sa.Column("time_zone", sa.Text(), nullable=True))
    op.add_column("schedules", sa.Column("new_labels", sa.Integer(), nullable=True))
    op.add_column("schedules", sa.Column("label_sources", postgresql.JSONB(none_as_null=True), nullable=True))
    op.add_column("schedules", sa.Column("counted", sa.Integer(), nullable=True))
    op.add_column("schedules", sa.Column("counted_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("schedules", sa.Column("needed", sa.Integer(), nullable=True))
    op.add_column("schedules", sa.Column("created_by", sa.Text(), nullable=True))
    op.add_column(
        "schedules",
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
    )
    op.create_check_constraint(
        op.f("ck_schedules_one_rule"), "schedules", "num_nonnulls(every_s, cron, new_labels) = 1"
    )
    op.create_check_constraint(op.f("ck_schedules_cron_zone"), "schedules", "(cron IS NULL) = (time_zone IS NULL)")
    op.create_check_constraint(
        op.f("ck_schedules_labels_of"), "schedules", "(new_labels IS NULL) = (label_sources IS NULL)"
    )
    op.alter_column("schedule_firings", "job_id", existing_type=sa.Uuid(), nullable=True)
    op.add_column("schedule_firings", sa.Column("skipped", sa.Text(), nullable=True))
    op.add_column("schedule_firings", sa.Column("asked_by", sa.Text(), nullable=True))
    op.add_column("schedule_firings", sa.Column("new_labels", sa.Integer(), nullable=True))
    op.add_column("schedule_firings", sa.Column("against_id", sa.Uuid(), nullable=True))
    op.create_foreign_key(
        op.f("fk_schedule_firings_against_id"), "schedule_firings", "dataset_versions", ["against_id"], ["id"]
    )
    op.create_check_constraint(
        op.f("ck_schedule_firings_made_or_skipped"), "schedule_firings", "(job_id IS NULL) = (skipped IS NOT NULL)"
    )
    op.add_column("runs", sa.Column("freeze_job_id", sa.Uuid(), nullable=True))
    op.create_index(op.f("ix_runs_freeze_job_id"), "runs", ["freeze_job_id"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_runs_freeze_job_id"), table_name="runs")
    op.drop_column("runs", "freeze_job_id")
    # What the older tables have no place for goes.
    op.execute(
        "DELETE FROM schedule_firings USING schedules WHERE schedules.id = schedule_id AND schedules.every_s IS NULL"
    )
    op.execute("DELETE FROM schedules WHERE every_s IS NULL")
    op.drop_constraint(op.f("ck_schedule_firings_made_or_skipped"), "schedule_firings", type_="check")
    op.drop_constraint(op.f("fk_schedule_firings_against_id"), "schedule_firings", type_="foreignkey")
    for column in ("against_id", "new_labels", "asked_by", "skipped"):
        op.drop_column("schedule_firings", column)
    op.alter_column("schedule_firings", "job_id", existing_type=sa.Uuid(), nullable=False)
    for name in ("labels_of", "cron_zone", "one_rule"):
        op.drop_constraint(op.f(f"ck_schedules_{name}"), "schedules", type_="check")
    rule = ("cron", "time_zone", "new_labels", "label_sources")
    for column in (*rule, "counted", "counted_at", "needed", "created_by", "created_at"):
        op.drop_column("schedules", column)
    op.alter_column("schedules", "every_s", existing_type=sa.Integer(), nullable=False)
