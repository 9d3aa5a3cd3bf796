#!/bin/sh
# News by mail: ralph run --notify 'sh notify-mail.sh'. It needs jq and mail.
# A mail for each event but `passed`: the news as its subject, the open questions of
# blocked tasks in its text.

# CHANGE: who gets it
to=you@example.org

news=$(jq -c 'select(.event != "passed")')
[ "$news" ] || exit 0
printf '%s\n' "$news" |
  jq -r '.tasks[] | select(.state == "blocked")
    | "\(.id) \(.title)\n  \(.reason)\n  \(.question // "")"' |
  mail -s "$(printf '%s\n' "$news" | jq -r .text)" "$to"
