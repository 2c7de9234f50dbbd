# standby.sh FOLDER PROGRAMS PRIMARY: copies the server whose socket is in PRIMARY to a cluster in
# FOLDER that replicates it.
folder=$1
programs=$2
primary=$3
as() {
    # The server refuses to run as root.
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; else "$@"; fi
}
[ "$(id -u)" != 0 ] || chown postgres: "$folder"
cd "$folder"
as "$programs/pg_basebackup" -h "$primary" -U postgres -D "$folder/data" -R -X stream --checkpoint=fast --no-sync
