FROM localhost/test/base
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY requirements.txt .
RUN cat requirements.txt > installed.txt
COPY app/ app/
EXPOSE 8000
ENTRYPOINT ["sh", "-c"]
CMD ["echo app"]
