FROM localhost/test/base AS base
RUN echo base > /base
ENV LEVEL=1
FROM base AS deps
RUN echo deps$LEVEL > /deps
FROM base AS tools
RUN echo tools > /tools
FROM deps
COPY --from=tools /tools /from-tools
COPY --from=deps /deps /again
