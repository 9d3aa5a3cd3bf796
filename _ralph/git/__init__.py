"""git: checkouts, snapshots, branches."""

import os
import re

_SETTINGS = re.compile(
    "GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|PARAMETERS|COUNT|KEY_[0-9]+|VALUE_[0-9]+)"
    "|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)"
)


def settings_env() -> dict[str, str]:
    """This user's environment, but of git's variables only those with settings and an
    identity: most others say where a repository is."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _SETTINGS.fullmatch(name)
    }
