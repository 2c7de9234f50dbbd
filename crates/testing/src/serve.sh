# serve.sh FOLDER PROGRAMS: becomes the server of the cluster in FOLDER. It stops when the process
# that started it ends, and then frees its shared memory.
folder=$1
programs=$2
cd "$folder"
user=
[ "$(id -u)" != 0 ] || user="--reuid=postgres --regid=postgres --init-groups"
# shellcheck disable=SC2086 # a list of words
exec setpriv $user --pdeathsig=QUIT -- "$programs/postgres" -D "$folder/data" -k "$folder" \
    -c listen_addresses= -c max_connections=200
