package winos

import (
	"errors"
	"testing"

	"golang.org/x/sys/windows/registry"
)

func TestAKeyThatLastsIsToldFromOneThatEndsWithTheBoot(t *testing.T) {
	const path = `SOFTWARE\windows-instance-config-daemon-test`
	remove := func() {
		if err := registry.DeleteKey(registry.LOCAL_MACHINE, path); err != nil && !errors.Is(err, registry.ErrNotExist) {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	for name, open := range map[string]func() (registry.Key, error){
		"ends": func() (registry.Key, error) { return makeVolatile(path) },
		"lasts": func() (registry.Key, error) {
			key, _, err := registry.CreateKey(registry.LOCAL_MACHINE, path, registry.ALL_ACCESS)
			return key, err
		},
	} {
		key, err := open()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			volatile, err := volatileKey{key}.volatile()
			if err != nil || volatile != (name == "ends") {
				t.Errorf("a key that %s is volatile: %t, %v", name, volatile, err)
			}
		}
		if err = (volatileKey{key}).setCounter(7); err != nil {
			t.Error(err)
		}
		if n, err := (volatileKey{key}).counter(); err != nil || n != 7 {
			t.Errorf("the counter is %d, %v", n, err)
		}
		closeKey(key)
		remove()
	}
}
