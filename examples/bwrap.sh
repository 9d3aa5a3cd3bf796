#!/bin/sh
# A sandbox for agents, checks, hooks and setup, on Linux with bubblewrap. Put it on PATH:
#
#     ralph run --wrap 'bwrap.sh {place}'
#
# A command can write in its checkout and nowhere else. Your home folder is hidden but
# for what is named here, the rest of the system is read-only, /tmp and /run are its own.
# The network is open: to cut it, for agents too, write `exec bwrap --unshare-net` below.
set -eu

# CHANGE: what of your home folder can be read: tools, and settings without secrets
read_only='.local/bin .local/lib .local/share/uv .local/share/claude .cargo/bin .rustup .nvm .pyenv .bun/bin .gitconfig .config/git'
# CHANGE: what of it can be changed as well: the login and sessions of your agent
writable='.claude .claude.json'

home=$(realpath "$HOME")
place=$1
shift
set -- --bind "$place" "$place" --chdir "$place" -- "$@"

# Home's object store, which git needs. The checkout names it; a name that leads
# somewhere else, as an agent could write it, is not followed.
for list in "$place/.git/objects/info/alternates" "$place"/.git/modules/*/objects/info/alternates; do
  [ -f "$list" ] || continue
  objects=$(realpath -e -- "$(head -n 1 "$list")") || continue
  case $objects in
  */objects) set -- --ro-bind "$objects" "$objects" "$@" ;;
  esac
done

# What lies in another folder must come after it, so this is put together from behind.
for name in $writable; do
  [ ! -e "$home/$name" ] || set -- --bind "$home/$name" "$home/$name" "$@"
done
for name in $read_only; do
  [ ! -e "$home/$name" ] || set -- --ro-bind "$home/$name" "$home/$name" "$@"
done

# IS_SANDBOX: else Claude Code refuses full permissions as root.
exec bwrap --die-with-parent --unshare-pid --unshare-ipc --ro-bind / / --dev /dev --proc /proc \
  --tmpfs /tmp --tmpfs /run --ro-bind-try /run/systemd/resolve /run/systemd/resolve \
  --tmpfs "$home" --setenv TMPDIR /tmp --setenv IS_SANDBOX 1 "$@"
