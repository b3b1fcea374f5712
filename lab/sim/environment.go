package sim

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// environment is the system environment, which Windows stores in the registry. The name of a variable keeps the upper
// and lower case of its first write.
type environment struct {
	mu        sync.Mutex
	variables map[string]variable // by folded name
}

type variable struct{ name, value string }

func newEnvironment() *environment {
	e := &environment{variables: map[string]variable{}}
	for name, value := range map[string]string{
		"ComSpec":                systemDir + `\cmd.exe`,
		"NUMBER_OF_PROCESSORS":   "4",
		"OS":                     "Windows_NT",
		"Path":                   systemDir + `;C:\Windows;` + systemDir + `\WindowsPowerShell\v1.0`,
		"PATHEXT":                ".COM;.EXE;.BAT;.CMD",
		"PROCESSOR_ARCHITECTURE": "AMD64",
		"TEMP":                   `C:\Windows\Temp`,
		"TMP":                    `C:\Windows\Temp`,
		"windir":                 `C:\Windows`,
	} {
		e.set(name, value)
	}
	return e
}

func (e *environment) all() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[string]string, len(e.variables))
	for _, v := range e.variables {
		all[v.name] = v.value
	}
	return all
}

func (e *environment) set(name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old, ok := e.variables[fold(name)]; ok {
		name = old.name
	}
	e.variables[fold(name)] = variable{name: name, value: value}
}

func (e *environment) unset(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.variables, fold(name))
}

// checkVariable returns an error if Windows doesn't accept a variable.
func checkVariable(name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
		return fmt.Errorf("variable %q: %w", name, winos.ErrInvalidName)
	}
	return nil
}

// processEnvironment returns the environment of a new process. It consists of the system environment, the variables
// that Windows adds, and the variables in `own`, which take precedence.
func (m *Machine) processEnvironment(own map[string]string) map[string]string {
	all := m.environment.all()
	maps.Copy(all, map[string]string{
		"COMPUTERNAME": netBIOSName(m.system.name()),
		"ProgramData":  `C:\ProgramData`,
		"SystemDrive":  "C:",
		"SystemRoot":   `C:\Windows`,
	})
	for name, value := range own {
		for existing := range all {
			if fold(existing) == fold(name) {
				delete(all, existing)
			}
		}
		all[name] = value
	}
	return all
}
