#!/bin/sh
# A check of a web page: starts its own server on a free port, asks it, and stops it.
# Copy it to checks/page.sh, with "checks": ["sh checks/page.sh"] in the task and
# "checks/**" under "protect". What it prints at its end, the next attempt reads.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 -m http.server --bind 127.0.0.1 --directory public "$port" > /dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT

tries=0
until page=$(curl -fs "http://127.0.0.1:$port/"); do
  tries=$((tries + 1))
  [ $tries -lt 50 ] || { echo "the server does not answer"; exit 1; }
  sleep 0.2
done

echo "$page" | grep -q 'Price: 19.90' || { echo "no price on the page:"; echo "$page"; exit 1; }
