#!/bin/sh
# Start the gate once its certificate and the SuperLink's address are there, and follow that address: nginx looks a name
# up when it reads its settings, and a SuperLink that is made anew may come back at another one.
here=$(dirname "$0")
address() { getent ahosts superlink | awk '{ print $1 }' | sort -u | tr '\n' ' '; }

until [ -r /secrets/ca.crt ] && [ -r /secrets/server.key ] && at=$(address) && [ -n "$at" ]; do sleep 0.5; done
while sleep 2; do
  now=$(address)
  if [ -n "$now" ] && [ "$now" != "$at" ]; then
    echo "the SuperLink has moved: reading the settings again" >&2
    nginx -e stderr -c "$here/nginx.conf" -s reload && at=$now
  fi
done &
exec nginx -e stderr -c "$here/nginx.conf" -g 'daemon off;'
