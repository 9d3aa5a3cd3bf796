#!/bin/sh
# News in a chat: ralph run --notify 'sh notify-chat.sh'. It needs curl and jq.
# Titles and reasons can be an agent's words: jq quotes them, and without the brackets
# nobody is paged by a <!channel>.

# CHANGE: the address of an incoming webhook
webhook=https://hooks.slack.com/services/T0/B0/x
# CHANGE: what it takes. Discord: {content: .text, allowed_mentions: {parse: []}}
message='{text: (.text | gsub("[<>]"; " "))}'

jq "$message" |
  curl -fsS -m 20 -H 'Content-Type: application/json' --data-binary @- "$webhook"
