# Changes an image inside of an overlay over its layers. Runs in namespaces of its own, from the store's folder.
#   $1 options of the overlay   $2 where it is mounted   $3 folder with `inside`, `apt.conf` and `files/`
set -eu
root=$2
mount -t overlay overlay -o "$1" "$root"

# Whatever is mounted here is gone with this process, so nothing of it gets into the image.
for folder in dev proc run tmp etc; do
    [ ! -L "$root/$folder" ] || { echo "/$folder of the image is a link" >&2; exit 1; }
    mkdir -p "$root/$folder"
done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"

mkdir "$root/run/build"
mount --bind "$3" "$root/run/build"
if [ -n "${HOLM_CERTIFICATES:-}" ]; then
    : >"$root/run/certificates"
    mount --bind "$HOLM_CERTIFICATES" "$root/run/certificates"
fi
[ ! -L "$root/etc/resolv.conf" ] || rm "$root/etc/resolv.conf"
[ -e "$root/etc/resolv.conf" ] || : >"$root/etc/resolv.conf"
[ ! -e /etc/resolv.conf ] || mount --bind /etc/resolv.conf "$root/etc/resolv.conf"

exec chroot "$root" /bin/sh /run/build/inside
