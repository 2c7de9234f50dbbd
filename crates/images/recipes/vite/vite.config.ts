import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

export default defineConfig({
  plugins: [react()],
  // It is asked for by the names of previews, and its port is the one that they lead to.
  server: { host: '0.0.0.0', port: 5173, strictPort: true, allowedHosts: true },
})
