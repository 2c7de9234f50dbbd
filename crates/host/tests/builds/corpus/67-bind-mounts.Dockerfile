# buildah: its isolation by chroot leaves the places of mounts behind
FROM localhost/test/base AS tools
RUN echo '#!/bin/sh' > /tool && echo 'echo tool ran' >> /tool && chmod 755 /tool
FROM localhost/test/base
RUN --mount=type=bind,source=package.json,target=/mnt/package.json cat /mnt/package.json > /from-context
RUN --mount=type=bind,from=tools,source=/tool,target=/mnt/tool /mnt/tool > /from-stage
RUN --mount=type=bind,target=/ctx ls /ctx/app > /listed
