// Asks for an address and tells what came back, as programs in Go do it by default:
// ask proxy|direct URL [BODY]. With `direct` it does not look at the variables for proxies.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if os.Args[1] == "direct" {
		transport.Proxy = nil
	}
	client := &http.Client{Transport: transport}
	method, body := http.MethodGet, io.Reader(nil)
	if len(os.Args) > 3 {
		method, body = http.MethodPost, strings.NewReader(os.Args[3])
	}
	request, err := http.NewRequest(method, os.Args[2], body)
	check(err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	check(err)
	told, err := io.ReadAll(answer.Body)
	check(err)
	fmt.Println(answer.Proto, answer.StatusCode, answer.Header.Get("Proxy-Error"))
	fmt.Println(string(told))
}

// The answer to a refusal is what it printed, and no panic.
func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(0)
	}
}
