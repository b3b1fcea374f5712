package winos

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// While a directory is being emptied, its path is changed so that it leads to another directory. That directory must
// keep its files.
func TestADirectoryThatIsReplacedWhileItIsEmptiedIsTheOneThatLosesItsFiles(t *testing.T) {
	dir := fmt.Sprintf(`C:\wmcotest-%d`, time.Now().UnixNano())
	t.Cleanup(func() {
		if err := (files{}).RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{dir + `\x\sub`, dir + `\kept\sub`} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{`\file`, `\..\file`} {
			if err := os.WriteFile(path+name, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	above, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = above.Close() }()
	opened, err := openDirectory(above, "x")
	if err != nil || opened == nil {
		t.Fatalf("opening: %v, %v", opened, err)
	}
	for _, move := range [][2]string{{dir + `\x`, dir + `\moved`}, {dir + `\kept`, dir + `\x`}} {
		if err = os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	err = removeContent(opened, dir+`\x`)
	want := map[string]int{dir + `\x`: 2, dir + `\x\sub`: 1}
	// Wine looks up the path of each file again before it removes the file, so nothing is removed here. Real Windows
	// empties the moved directory.
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() != nil {
		want[dir+`\moved`] = 0
		if err != nil {
			t.Error(err)
		}
	}
	for path, want := range want {
		if entries, err := os.ReadDir(path); err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", path, entries, err)
		}
	}
}
