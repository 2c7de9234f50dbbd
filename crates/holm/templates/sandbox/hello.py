# Run it with: holm exec {{name}} python3 /app/hello.py
print("hello from {{name}}")
