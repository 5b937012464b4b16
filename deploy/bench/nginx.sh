#!/bin/sh
# Makes nginx available for the overhead suite where that needs no question: Debian or Ubuntu, as root. Its own service is not left running.
set -u
PATH="$PATH:/usr/sbin"
command -v nginx >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install() { apt-get install -y -qq --no-install-recommends nginx-light >/dev/null 2>&1; }
    install || { apt-get update -qq >/dev/null 2>&1 && install; }
    command -v systemctl >/dev/null && systemctl disable --now nginx >/dev/null 2>&1
fi
command -v nginx >/dev/null || echo "nginx is not installed (Debian, as root: apt-get install nginx-light): its figures will be null" >&2
exit 0
