"""Label Studio as the label bridge, over its own SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from label_studio_sdk import LabelStudio
from label_studio_sdk.core.api_error import ApiError
from label_studio_sdk.core.request_options import RequestOptions

from engine.adapters.label_studio.config import INSTRUCTION, label_config, project_description, project_title
from engine.adapters.label_studio.errors import tool_errors
from engine.adapters.label_studio.tasks import PREDICTION_VERSION, read_annotation, task_payload
from engine.domain.ontology import Ontology
from engine.ports import LabelToolRefused, LabelToolUnavailable, TaskDraft, ToolAnnotation, ToolTask

# The SDK repeats calls by itself, POSTs too, which would make a task twice. Reading twice does no harm.
_WRITE: RequestOptions = {"max_retries": 0}
_READ: RequestOptions = {"max_retries": 1}

# Keys go into the query string of a GET; 60 keep it well under the 8 KiB that servers commonly take.
_KEYS_A_CALL = 60
_TASKS_A_PAGE = 50  # with annotations and predictions, of which one mask may be a megabyte
_PROJECTS_A_PAGE = 100
# Said anew at every reading, so that the same annotation would look changed.
_VOLATILE = ("created_ago",)
_WEBHOOK_ACTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED")


class LabelStudioBridge:
    """The label tool's projects, tasks and annotations. One instance may serve one thread.

    `project_prefix` leads the titles of our projects in the tool, and so keeps several Longtail projects apart.
    `public_url` is the address that people reach the tool at, where it differs from ours.
    All methods raise LabelToolUnavailable when the tool can't answer and LabelToolRefused when it won't.
    """

    def __init__(
        self,
        url: str,
        token: str,
        project_prefix: str,
        *,
        public_url: str | None = None,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self._public_url = (public_url or url).rstrip("/")
        self._prefix = project_prefix
        # The SDK's own client would take proxies from the environment.
        self._http = httpx.Client(timeout=httpx.Timeout(timeout_s, connect=connect_timeout_s), trust_env=False)
        with tool_errors("signing in"):
            self._tool = LabelStudio(base_url=url.rstrip("/"), api_key=token, httpx_client=self._http, max_retries=0)
        self._emails: dict[int, str] = {}

    def close(self) -> None:
        self._http.close()

    def ready(self) -> bool:
        """Whether the tool answers and takes our token. Raises LabelToolRefused when it does not take it."""
        try:
            with tool_errors("asking who we are"):
                self._tool.users.whoami(request_options=_WRITE)
        except LabelToolUnavailable:
            return False
        return True

    # --- projects ---------------------------------------------------------------------------------------------------

    def ensure_project(self, ontology: Ontology) -> int:
        """The project of this title with the lowest id, made if there is none.

        Workers that make it at once end on the same one; what the others made stays behind, empty. It isn't deleted,
        because Label Studio drops all its signal handlers while it deletes a project, and never gets them back when it
        deletes two at once. The label config follows ours only while nothing is annotated.
        Raises LabelToolRefused if it has annotations made under another ontology of the same name and version.
        """
        title, config = project_title(self._prefix, ontology), label_config(ontology)
        found = self._projects_titled(title)
        if not found:
            made = self._create_project(title, config, ontology)
            found = self._projects_titled(title) or [made]
        self._follow_config(found[0], config, ontology)
        return found[0]

    def _projects_titled(self, title: str) -> list[int]:
        """Ids of the projects of exactly this title, lowest first. The tool's own filter is by part and any case."""
        with tool_errors(f"looking for project {title!r}"):
            pages: Any = self._tool.projects.list(title=title, page_size=_PROJECTS_A_PAGE, request_options=_READ)
            return sorted(project.id for project in pages if project.title == title)

    def _create_project(self, title: str, config: str, ontology: Ontology) -> int:
        with tool_errors(f"making project {title!r}"):
            made = self._tool.projects.create(
                title=title,
                description=project_description(ontology),
                label_config=config,
                expert_instruction=INSTRUCTION,
                sampling="Sequential sampling",
                maximum_annotations=1,
                enable_empty_annotation=True,
                show_skip_button=True,
                show_collab_predictions=True,
                model_version=PREDICTION_VERSION,
                evaluate_predictions_automatically=False,
                request_options=_WRITE,
            )
        if made.id is None:
            raise LabelToolUnavailable(f"the label tool at making project {title!r}: it did not say the project's id")
        return made.id

    def _follow_config(self, tool_project: int, config: str, ontology: Ontology) -> None:
        with tool_errors(f"reading project {tool_project}"):
            project = self._tool.projects.get(tool_project, request_options=_READ)
        description = project_description(ontology)
        if project.label_config == config and project.description == description:
            return
        if project.total_annotations_number or project.skipped_annotations_number:
            if project.description != description:
                raise LabelToolRefused(
                    f"project {tool_project} has annotations under {project.description!r}, not {description!r}: "
                    "give the changed ontology a new version"
                )
            return
        with tool_errors(f"changing the label config of project {tool_project}"):
            self._tool.projects.update(
                tool_project, label_config=config, description=description, request_options=_WRITE
            )

    # --- tasks ------------------------------------------------------------------------------------------------------

    def create_tasks(self, tool_project: int, ontology: Ontology, drafts: Sequence[TaskDraft]) -> None:
        """See LabelBridge. The tool takes all of them or none."""
        if not drafts:
            return
        payload: Any = [task_payload(ontology, draft) for draft in drafts]
        with tool_errors(f"making {len(drafts)} tasks in project {tool_project}"):
            self._tool.projects.import_tasks(tool_project, request=payload, request_options=_WRITE)

    def tasks_by_key(self, tool_project: int, keys: Sequence[str]) -> dict[str, list[ToolTask]]:
        """See LabelBridge. Keys without a task are left out."""
        found: dict[str, list[ToolTask]] = {}
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _KEYS_A_CALL):
            filters = [_filter("data.key", "in_list", "String", wanted[start : start + _KEYS_A_CALL])]
            for task in self._tasks(tool_project, filters):
                key = task.data["key"]
                found.setdefault(key, []).append(ToolTask(id=task.id, key=key))
        return found

    def delete_tasks(self, task_ids: Sequence[int]) -> None:
        """See LabelBridge. Their annotations go with them."""
        for task_id in task_ids:
            try:
                with tool_errors(f"deleting task {task_id}"):
                    self._tool.tasks.delete(str(task_id), request_options=_WRITE)
            except LabelToolRefused as refused:
                if not isinstance(refused.__cause__, ApiError) or refused.__cause__.status_code != 404:
                    raise

    def task_url(self, tool_project: int, task_id: int) -> str:
        """Where a person opens the task."""
        return f"{self._public_url}/projects/{tool_project}/data?task={task_id}"

    # --- annotations ------------------------------------------------------------------------------------------------

    def annotations(
        self, tool_project: int, ontology: Ontology, updated_since: str | None = None
    ) -> Iterator[ToolAnnotation]:
        """See LabelBridge. By task, skipped ones included, one page of tasks in memory at a time.

        `updated_since` is a time in ISO 8601, as in `ToolAnnotation.updated_at`. The tool stamps a change before it
        commits it, so ask again from a little before the newest that you have seen.
        """
        for _, there in self.task_annotations(tool_project, ontology, updated_since):
            yield from there

    def task_annotations(
        self, tool_project: int, ontology: Ontology, updated_since: str | None = None
    ) -> Iterator[tuple[ToolTask, list[ToolAnnotation]]]:
        """See LabelBridge. The same as `annotations`, with the tasks that have none any more."""
        for task in self._changed_tasks(tool_project, updated_since):
            annotations = []
            for annotation in task.annotations or ():
                kept = {name: value for name, value in annotation.items() if name not in _VOLATILE}
                annotations.append(read_annotation(ontology, task.id, task.data, kept, self._annotator(annotation)))
            yield ToolTask(id=task.id, key=str(task.data["key"])), annotations

    def annotation_ids(
        self, tool_project: int, updated_since: str | None = None
    ) -> Iterator[tuple[ToolTask, list[int]]]:
        """The annotations that the tasks have now, for tasks changed since: what is missing from here was deleted."""
        for task in self._changed_tasks(tool_project, updated_since):
            yield (
                ToolTask(id=task.id, key=str(task.data["key"])),
                sorted(int(annotation["id"]) for annotation in task.annotations or ()),
            )

    def _changed_tasks(self, tool_project: int, updated_since: str | None) -> Iterator[Any]:
        """Our tasks with their annotations; a task that somebody else put there has no key and is left out."""
        filters = []
        if updated_since is not None:
            since = datetime.fromisoformat(updated_since).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            filters.append(_filter("updated_at", "greater_or_equal", "Datetime", since))
        for task in self._tasks(tool_project, filters, fields="all", page_size=_TASKS_A_PAGE):
            if isinstance(task.data.get("key"), str):
                yield task

    def _annotator(self, annotation: Mapping[str, Any]) -> str:
        """The annotator's address, or the tool's id of one that is gone from the tool."""
        user = annotation.get("completed_by")
        if isinstance(user, Mapping):
            return str(user.get("email") or user.get("id"))
        if user is None:
            return "unknown"
        if user not in self._emails:
            with tool_errors("reading the annotators"):
                self._emails = {u.id: u.email for u in self._tool.users.list(request_options=_READ)}
            self._emails.setdefault(user, str(user))
        return self._emails[user]

    def _tasks(
        self,
        tool_project: int,
        filters: Sequence[Mapping[str, Any]],
        *,
        fields: str = "task_only",
        page_size: int = 500,
    ) -> Iterator[Any]:
        """The project's tasks by ascending id.

        Each page starts after the last id seen, not at a number of rows: tasks that are deleted meanwhile would move
        others over the edge of a page, unseen. The tool may give smaller pages than it is asked for.
        """
        last = 0
        while True:
            items = [*filters, _filter("id", "greater", "Number", last)]
            query = json.dumps({"filters": {"conjunction": "and", "items": items}, "ordering": ["tasks:id"]})
            with tool_errors(f"reading the tasks of project {tool_project}"):
                pager: Any = self._tool.tasks.list(
                    project=tool_project,
                    query=query,
                    fields=fields,
                    page=1,
                    page_size=page_size,
                    resolve_uri=False,
                    request_options=_READ,
                )
                page = list(pager.items or ())
            yield from page
            if not page or len(page) >= (pager.response.total if pager.response else 0):
                return
            last = page[-1].id

    # --- the hint ---------------------------------------------------------------------------------------------------

    def ensure_webhook(self, tool_project: int, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Have the tool call `url` whenever an annotation comes, changes or goes. A hint: it carries no annotation.

        Raises LabelToolRefused where the tool may not call such an address (it bars private networks by default).
        """
        with tool_errors(f"setting the webhook of project {tool_project}"):
            hooks = self._tool.webhooks.list(project=str(tool_project), request_options=_READ)
            if any(hook.url == url and hook.is_active for hook in hooks):
                return
            self._tool.webhooks.create(
                project=tool_project,
                url=url,
                headers=dict(headers or {}),
                send_payload=False,
                send_for_all_actions=False,
                actions=list(_WEBHOOK_ACTIONS),
                is_active=True,
                request_options=_WRITE,
            )


def _filter(column: str, operator: str, kind: str, value: Any) -> dict[str, Any]:
    return {"filter": f"filter:tasks:{column}", "operator": operator, "type": kind, "value": value}
