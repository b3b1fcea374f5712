package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// wholly are the directories that are compared with all that lies in them: those of the operator and of what it
// drives. Of others only the names in them are compared.
func wholly() []string {
	return []string{contract.DirK, `C:\etc`, `C:\opt`, `C:\var`, `C:\run`, contract.DirContainerdData}
}

// names are the directories whose entries are compared by name.
func names() []string {
	return []string{`C:\`, `C:\ProgramData`, `C:\Program Files`, `C:\Windows`}
}

// ofALogon are services that Windows makes for each user who logs on, such as CDPUserSvc_3a1b2.
var ofALogon = regexp.MustCompile(`_[0-9a-f]{4,}$`)

// look renders what a machine holds, a line for each thing: files, services, environment, certificates, host name.
// What is running is left out.
func look(ctx context.Context, host winos.Host) (sim.Snapshot, error) {
	s := sim.Snapshot{}
	facts, err := host.System.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the facts of the machine: %w", err)
	}
	s["hostname"] = facts.Hostname
	services, err := host.Services.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing services: %w", err)
	}
	for _, name := range services {
		if ofALogon.MatchString(name) {
			continue
		}
		c, err := host.Services.Get(ctx, name)
		if errors.Is(err, winos.ErrNotFound) || errors.Is(err, winos.ErrDenied) {
			continue // it is gone by now, or nobody may read it
		}
		if err != nil {
			return nil, fmt.Errorf("reading service %s: %w", name, err)
		}
		s["service "+strings.ToLower(name)] = fmt.Sprintf("command %q after %q environment %v", c.Command,
			c.Dependencies, c.Environment)
	}
	variables, err := host.Environment.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the environment: %w", err)
	}
	for name, value := range variables {
		s["environment "+strings.ToLower(name)] = value
	}
	certificates, err := host.Trust.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing certificates: %w", err)
	}
	for _, der := range certificates {
		s["certificate "+contract.Digest(der)] = fmt.Sprintf("%d bytes", len(der))
	}
	for _, dir := range names() {
		err = errors.Join(err, walk(host.Files, dir, s, false))
	}
	for _, dir := range wholly() {
		err = errors.Join(err, walk(host.Files, dir, s, true))
	}
	return s, err
}

// walk adds what lies in a directory; deep with content, and with all below.
func walk(files winos.Files, dir string, s sim.Snapshot, deep bool) error {
	infos, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, winos.ErrDenied) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, info := range infos {
		path := strings.TrimSuffix(dir, `\`) + `\` + info.Name
		key := "file " + strings.ToLower(path)
		switch {
		case info.Dir:
			s[key] = "directory"
			if deep {
				err = errors.Join(err, walk(files, path, s, true))
			}
		case deep:
			s[key] = describe(files, path, info)
		default:
			s[key] = "file"
		}
	}
	return err
}

// describe is the content of a file, or why it can't be read.
func describe(files winos.Files, path string, info winos.FileInfo) string {
	file, err := files.Open(path)
	if err != nil {
		return fmt.Sprintf("%d bytes", info.Size)
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err = io.Copy(hash, file); err != nil {
		return fmt.Sprintf("%d bytes", info.Size)
	}
	return fmt.Sprintf("%d bytes %s", info.Size, hex.EncodeToString(hash.Sum(nil)))
}

// differences are what a node that left has not taken back. Logs stay by design, and the CNI configuration is ours.
func differences(before, after sim.Snapshot) []string {
	return sim.Diff(before, after, contract.DirLog, cniConfig)
}
