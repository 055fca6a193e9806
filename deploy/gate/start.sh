#!/bin/sh
# Start the gate once its certificate and the SuperLink's address are there, and follow that address: nginx looks a name
# up when it reads its settings, and a SuperLink that is made anew may come back at another one.
here=$(dirname "$0")
address() { getent ahosts superlink | awk '{ print $1 }' | sort -u | tr '\n' ' '; }

# nginx writes its errors in a format of its own. Each becomes an object, as all lines of a deployment are.
rm -f /tmp/errors && mkfifo -m 600 /tmp/errors
LC_ALL=C sed -u -E -e 's/[^ -~]/?/g' -e 's/[\\"]/\\&/g' \
  -e 's|^([0-9]{4})/([0-9]{2})/([0-9]{2}) ([0-9:]{8}) \[([a-z]+)\] (.*)|{"time":"\1-\2-\3T\4","level":"\5","service":"gate","message":"\6"}|' \
  -e '/^\{"time":/!s|.*|{"level":"info","service":"gate","message":"&"}|' </tmp/errors >&2 &
exec 2>/tmp/errors

until [ -r /secrets/ca.crt ] && [ -r /secrets/server.key ] && at=$(address) && [ -n "$at" ]; do sleep 0.5; done
while sleep 2; do
  now=$(address)
  if [ -n "$now" ] && [ "$now" != "$at" ]; then
    echo "the SuperLink has moved: reading the settings again" >&2
    nginx -e stderr -c "$here/nginx.conf" -s reload && at=$now
  fi
done &
exec nginx -e stderr -c "$here/nginx.conf" -g 'daemon off;'
