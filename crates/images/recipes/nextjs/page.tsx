export default function Page() {
  return (
    <main>
      <h1>A new application</h1>
      <p>Change app/page.tsx, and this page follows.</p>
    </main>
  )
}
