//! Tries to get out with what every image has.

use crate::machine::Machine;
use node::Exit;

/// Checks that each line of the script prints `refused`, and not what it got.
#[track_caller]
fn all_refused(attempts: &[&str]) {
    let machine = Machine::new();
    let node = machine.open();
    let script: String = attempts
        .iter()
        .map(|attempt| format!("({attempt}) >/dev/null 2>&1 && echo 'GOT: {attempt}'\n"))
        .collect();
    let (exit, text) = machine.outcome(&node, &format!("{script}\nexit 0"));
    assert_eq!((exit, text.as_str()), (Exit::Code(0), ""));
}

#[track_caller]
fn prints(script: &str, expected: &str) {
    let machine = Machine::new();
    let node = machine.open();
    assert_eq!(machine.outcome(&node, script).1, expected);
}

#[test]
fn no_mounts_and_no_namespaces() {
    all_refused(&[
        "mount -t tmpfs none /tmp",
        "mount -o bind / /tmp",
        "mount -o remount,rw /proc/sys",
        "umount /proc/kcore",
        "umount -l /proc",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "pivot_root / /tmp",
        "mknod /tmp/disk b 8 0 && head -c1 /tmp/disk",
        "mknod /tmp/kmsg c 1 11 && head -c1 /tmp/kmsg",
    ]);
}

#[test]
fn no_power_over_the_machine() {
    all_refused(&[
        "hostname other",
        "date -s 2001-01-01; [ $(date +%Y) = 2001 ]",
        "dmesg",
        "echo 1 > /proc/sys/kernel/panic",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/drop_caches",
        "swapoff -a; swapon /tmp",
        "insmod /bin/busybox",
        "nice -n -5 true",
        "chrt -f 1 true",
        "reboot -f",
        "echo -1000 > /proc/self/oom_score_adj",
        "touch /dev/new",
        "rm /dev/null",
        "chmod 600 /dev/null",
        "echo 1 > /proc/1/uid_map",
    ]);
}

#[test]
fn no_power_over_the_network() {
    all_refused(&[
        "ip link set eth0 down",
        "ip link add x type dummy",
        "ip addr add 10.0.0.1/32 dev eth0",
        "ip route del default",
        "ip route add 1.2.3.4/32 dev eth0",
        "ip neigh flush dev eth0; ! grep -q 169.254.1.1 /proc/net/arp",
        "arping -c 1 -w 1 -I eth0 169.254.1.1",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
    ]);
}

#[test]
fn parts_of_proc_are_masked() {
    prints(
        "for file in kcore keys timer_list sysrq-trigger; do
            [ ! -e /proc/$file ] || [ -c /proc/$file ] || echo $file
        done
        grep -c ' /proc/sys proc ro' /proc/mounts
        ls /proc/acpi /proc/scsi /sys 2>/dev/null | grep -v : | tr -d '\\n'",
        "1\n",
    );
}

#[test]
fn nothing_of_the_machine_is_in_sight() {
    prints("echo /proc/[0-9]*", "/proc/1\n");
    prints("grep -c -e /tmp -e /var -e vda /proc/mounts", "0\n");
    prints("cut -d: -f3 /proc/self/cgroup | sort -u", "/\n");
    prints("readlink /proc/1/exe | cut -c1-8", "/memfd:p\n");
}

#[test]
fn rights_are_the_short_list_and_cannot_grow() {
    let script = "grep -e CapEff -e CapBnd -e CapInh -e CapAmb -e NoNewPrivs -e 'Seccomp:' /proc/self/status | cut -f2 | tr '\\n' ' '";
    prints(script, "0000000000000000 00000000800401fb 00000000800401fb 0000000000000000 1 2 ");
    prints("cat /proc/self/setgroups; awk '{print $1, $3}' /proc/self/uid_map", "allow\n0 65536\n");
}
