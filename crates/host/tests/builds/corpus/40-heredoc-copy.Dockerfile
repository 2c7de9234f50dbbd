# buildah: no
FROM localhost/test/base
ARG NAME=world
COPY <<EOF /hello.txt
hello $NAME
EOF
COPY <<one <<"two" /texts/
1 $NAME
one
2 $NAME
two
