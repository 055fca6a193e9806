#!/bin/sh
# Start the gate once its certificate and the SuperLink's address are there, and follow that address: nginx resolves a
# name only when it reads its settings, and a SuperLink that was created again may have another address.
folder=$(dirname "$0")
address() { getent ahosts superlink | awk '{ print $1 }' | sort -u | tr '\n' ' '; }

until [ -r /secrets/ca.crt ] && [ -r /secrets/server.key ] && known=$(address) && [ -n "$known" ]; do sleep 0.5; done
while sleep 2; do
  now=$(address)
  if [ -n "$now" ] && [ "$now" != "$known" ]; then
    echo "the SuperLink has moved: reading the settings again" >&2
    nginx -e stderr -c "$folder/nginx.conf" -s reload && known=$now
  fi
done &
exec nginx -e stderr -c "$folder/nginx.conf" -g 'daemon off;'
