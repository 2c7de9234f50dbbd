# start.sh FOLDER PROGRAMS: makes a database cluster in FOLDER and starts its server.
folder=$1
programs=$2
as() {
    # The server refuses to run as root.
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; else "$@"; fi
}
rm -rf "$folder/data"
[ "$(id -u)" != 0 ] || chown postgres: "$folder"
cd "$folder"
as "$programs/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync
as "$programs/pg_ctl" -D "$folder/data" -l "$folder/log" -w \
    -o "-k '$folder' -c listen_addresses='' -c max_connections=400" start >/dev/null 2>&1 </dev/null
