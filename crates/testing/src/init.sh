# init.sh FOLDER PROGRAMS: makes a database cluster in FOLDER.
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
