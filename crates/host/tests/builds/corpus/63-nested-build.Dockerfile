FROM localhost/test/base AS deps
WORKDIR /app
COPY package.json .
RUN mkdir node_modules && echo dep > node_modules/dep
FROM localhost/test/base AS builder
WORKDIR /app
COPY --from=deps /app/node_modules ./node_modules
COPY . .
RUN mkdir -p .next/static && echo built > .next/static/app && cp app/main.py .next/server
FROM localhost/test/base AS runner
WORKDIR /app
ENV NODE_ENV=production
COPY --from=builder --chown=ada:ada /app/.next ./.next
COPY --from=builder /app/package.json ./package.json
USER ada
EXPOSE 3000
CMD ["sh", "server"]
