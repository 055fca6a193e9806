#!/bin/sh
# Dumps the ledger every FIELDFARE_BACKUP_SECONDS into /backups and keeps the newest seven. A dump gets its name once it is whole
# and on the disk; the API tells its age. The address is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, of a role that reads.
set -u
umask 077
part() { sed -n "s#^[a-z+]*://\([^:]*\):\([^@]*\)@\([^:/]*\).*#\\$1#p" /secrets/ledger.url; }
while :; do
    if [ -s /secrets/ledger.url ]; then
        name=ledger-$(date -u +%Y%m%dT%H%M%S.000000Z).dump
        if PGPASSWORD=$(part 2) pg_dump --host="$(part 3)" --username="$(part 1)" --format=custom \
            --file="/backups/.$name.part" fieldfare && sync "/backups/.$name.part"; then
            mv "/backups/.$name.part" "/backups/$name"
            ls /backups/ledger-*.dump | head -n -7 | while read -r old; do rm -f "$old"; done
            echo "backup $name"
            sleep "${FIELDFARE_BACKUP_SECONDS:-86400}"
            continue
        fi
        rm -f "/backups/.$name.part"
        echo "backup failed; again in a minute" >&2
    fi
    sleep 60
done
