FROM localhost/test/base
RUN head -c 3000000 /dev/zero > /zeros && cat /bin/busybox /bin/busybox > /twice
