"""A site's SuperNode: Flower's own, with what a site's folder says, and a line in the audit log for all code it gets.

::

    site.toml       the site's name and number, and where the server is
    ca.crt, node    whom it trusts, and who it is
    approved.json   whose code it runs; without any it does not start: to Flower, no list means that all may run
"""

import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.supercore.fab import Fab
from flwr.supernode import start_client_internal as flower
from flwr.supernode.cli import flower_supernode

from ecgr.errors import ConfigError
from ecgr.flower.apps.enrolment import Listed
from ecgr.flower.audit import PLACE, Audit
from ecgr.flower.deploy.bundles import APPROVED, approvals, hashes

SITE_FILE = "site.toml"
UNSIGNED = "code: no key that this site has approved has signed this bundle"


def read_site(folder: Path) -> dict[str, Any]:
    """What the operator said of a site: ``name``, ``client``, ``superlink``."""
    path = folder / SITE_FILE
    try:
        site = tomllib.loads(path.read_text())
        return {"name": Listed(site["name"]).name, "client": int(site["client"]), "superlink": str(site["superlink"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a site's file: {error}") from None


def run_site(folder: Path, audit: Path, more: Sequence[str] = ()) -> None:
    """Run the SuperNode of the site in ``folder`` until it is stopped; ``more`` is given to `flower-supernode`."""
    site, trusted = read_site(folder), approvals(folder)
    if not trusted:
        raise ConfigError(f"{folder / APPROVED}: nobody's code is approved here; see `ecgr federate approve --help`")
    log = Audit(audit, site["name"])
    os.environ[PLACE] = str(audit.resolve())  # for the apps that it starts
    sys.argv = ["flower-supernode", "--superlink", site["superlink"], "--root-certificates", str(folder / "ca.crt")]
    sys.argv += ["--auth-supernode-private-key", str(folder / "node"), "--host", "127.0.0.1"]
    sys.argv += ["--node-config", f'partition-id={site["client"]} name="{site["name"]}"']
    sys.argv += ["--trusted-entities", str(folder / APPROVED), *more]
    flower._pull_and_store_message = watched(flower._pull_and_store_message, log)
    log.write("site starts", superlink=site["superlink"], approved=[*trusted])
    flower_supernode()


def watched(pull: Any, log: Audit) -> Any:
    """Flower's step that takes in a message, and with a run's first one its code; noted is what Flower made of that."""

    def pull_and_note(*, state: Any, get_fab: Any, **rest: Any) -> Any:
        fetched: list[tuple[int, Fab]] = []

        def fetch(fab_hash: str, run: int) -> Fab:
            fetched.append((run, get_fab(fab_hash, run)))
            return fetched[-1][1]

        try:
            return pull(state=state, get_fab=fetch, **rest)
        finally:
            for run, bundle in fetched:
                if state.get_run(run) is not None:
                    log.write("code", run=run, **hashes(bundle))
                else:  # and nothing of it is unpacked
                    log.write("refused", run=run, **hashes(bundle, config=False), reason=UNSIGNED)

    return pull_and_note
