# keep.sh FOLDER PROGRAMS: stops the server and removes FOLDER once no test process uses it.
folder=$1
programs=$2
cd /
while sleep 1 && [ -e "$folder/users" ]; do
    (
        flock -n 9 || exit 1
        kill -QUIT "$(head -n 1 "$folder/data/postmaster.pid")"
        while kill -0 "$(head -n 1 "$folder/data/postmaster.pid" 2>/dev/null)" 2>/dev/null; do sleep 0.1; done
        rm -rf "$folder"
    ) 9<"$folder/users" && exit
done
