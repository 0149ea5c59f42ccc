package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fieldCases are the failures from the field that etcdinit answers for; see
// the tests that name them.
const fieldCases = `DL-01 DL-03 DL-05 DL-06 DL-08 DL-10 DL-11 DL-12 DL-13 DL-14
	SB-01 SB-03 SB-04 SB-07 SB-09 SB-10 SB-12 SB-14 SB-15
	WB-01 WB-03 WB-04 WB-05 WB-07 WB-09 WB-10 WB-11 WB-13 WB-14 WB-15 WB-17 WB-18 WB-20 WB-21 WB-22 WB-23 WB-24
	WB-27 WB-28 WB-31 WB-32 WB-34 WB-36 WB-37 WB-39 WB-40 WB-42 WB-44 WB-46 WB-48 WB-49 WB-51 WB-52 WB-54 WB-56 WB-58
	WB-59 WB-60 WB-61
	CF-01 CF-02 CF-04 CF-05 CF-06`

// TestFieldCases fails for a case that no test or script names.
func TestFieldCases(t *testing.T) {
	named := map[string]bool{}
	id := regexp.MustCompile(`\b(DL|SB|WB|CF)-\d\d\b`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if base := filepath.Base(path); base == "cases_test.go" || !strings.HasSuffix(base, "_test.go") && !strings.HasSuffix(base, ".txtar") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range id.FindAllString(string(data), -1) {
			named[m] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for c := range strings.FieldsSeq(fieldCases) {
		if !named[c] {
			t.Errorf("no test names field case %s", c)
		}
	}
}
