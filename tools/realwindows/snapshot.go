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

// The function wholly lists the directories whose whole content is compared: the directories of the operator and of the
// programs that it controls.
func wholly() []string {
	return []string{contract.DirK, `C:\etc`, `C:\opt`, `C:\var`, `C:\run`, contract.DirContainerdData}
}

// names lists the directories that are compared only by the names of their entries.
func names() []string {
	return []string{`C:\`, `C:\ProgramData`, `C:\Program Files`, `C:\Windows`}
}

// ofALogon matches services that Windows creates for each logon of a user, such as CDPUserSvc_3a1b2.
var ofALogon = regexp.MustCompile(`_[0-9a-f]{4,}$`)

// look returns a snapshot of a machine, with a line for each object: files, services, environment, certificates,
// host name. It omits running processes.
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
			continue // the service has just been deleted, or access is denied
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

// walk adds the entries of a directory. If deep is true, it also adds the content of files, and all entries below.
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

// describe returns the size and digest of a file. If the file can't be read, it returns only the size.
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

// differences returns what the node left behind or changed. It ignores logs, which stay by design, and our CNI
// configuration.
func differences(before, after sim.Snapshot) []string {
	return sim.Diff(before, after, contract.DirLog, cniConfig)
}
