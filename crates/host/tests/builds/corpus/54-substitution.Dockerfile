FROM localhost/test/base
ARG EMPTY=
ARG SET=yes
ENV A=${EMPTY:-fallback} B=${SET:+given} C=${NONE:+never} D=pre${SET}post E=\$SET
