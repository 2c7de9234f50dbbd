FROM localhost/test/base
RUN --mount=type=cache,target=/cache echo x > /cache/x && ls /cache > /listed
RUN --mount=type=tmpfs,target=/scratch echo y > /scratch/y && cat /scratch/y > /copied
