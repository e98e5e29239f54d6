"""Updates as the database stores them: what a node returned, or only what it changed if that is shorter.

The result of a node in a parallel superstep waits for its siblings, and jobs of a batch share results. The reader of
such an update has the node's input state, so a list that grew need not be stored whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.held import merged
from wtb.domain.state import DELETE, Append, Merge, Update


def shortened(update: Mapping[str, Any]) -> dict[str, Any]:
    """Return an update as data: new values, deleted keys, and additions to existing values."""
    changes = update.changes if isinstance(update, Update) else {}
    values, grown = dict[str, Any](), dict[str, Any]()
    for key, value in update.items():
        match changes.get(key):
            case Append(items=items):
                grown[key] = {"length": len(value) - len(items), "items": list(items)}
            case Merge(items=items, removed=removed):
                grown[key] = {"items": dict(items), "removed": list(removed)}
            case _ if value is not DELETE:
                values[key] = value
    deleted = [key for key, value in update.items() if value is DELETE]
    return {"returned": values, "deleted": deleted} | ({"grown": grown} if grown else {})


def restored(data: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild the update from the data of `shortened` and the node's input state."""
    grown = {key: _grown(key, change, state.get(key)) for key, change in data.get("grown", {}).items()}
    return {**data["returned"], **grown, **dict.fromkeys(data.get("deleted", ()), DELETE)}


def _grown(key: str, change: Mapping[str, Any], old: Any) -> Any:
    if type(old) is list and change.get("length") == len(old):
        return [*old, *change["items"]]
    if type(old) is dict and "removed" in change:
        return merged(old, change["items"], change["removed"])
    raise DamagedData(
        f"the kept result of a node extends {key!r}, but the state now holds another value there; "
        "resume with rerun_node=True to run the node again"
    )
