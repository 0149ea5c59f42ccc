// Command man prints the manual page etcdinit(8), for packages:
//
//	go run ./cmd/internal/man v1.2.3 >etcdinit.8
package main

import (
	"fmt"
	"os"

	"github.com/etcdinit/etcdinit/cmd/internal/app"
)

func main() {
	version := ""
	if len(os.Args) > 1 {
		version = os.Args[1]
	}
	if _, err := os.Stdout.WriteString(app.Man(version)); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}
