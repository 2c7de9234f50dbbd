import type { NextConfig } from 'next'

const config: NextConfig = {
  // It is asked for by the names of previews.
  allowedDevOrigins: ['*.*', '*.*.*', '*.*.*.*', '*.*.*.*.*'],
}

export default config
