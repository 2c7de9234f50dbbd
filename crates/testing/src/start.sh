# start.sh FOLDER PROGRAMS: starts the shared server of the cluster in FOLDER, in the background.
# Nothing of it outlives the machine, so it need not wait for the disk.
folder=$1
programs=$2
as() {
    # The server refuses to run as root.
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; else "$@"; fi
}
cd "$folder"
as "$programs/pg_ctl" -D "$folder/data" -l "$folder/log" -w \
    -o "-k '$folder' -c listen_addresses='' -c max_connections=400 -c fsync=off -c full_page_writes=off" start >/dev/null 2>&1 </dev/null
