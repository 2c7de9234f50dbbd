# buildah: no
FROM localhost/test/base
RUN <<EOF
echo one > /one
echo two > /two
EOF
RUN <<'EOF' cat > /three
$HOME stays
EOF
RUN <<EOF
#!/bin/sh
echo "$0" > /zero
EOF
