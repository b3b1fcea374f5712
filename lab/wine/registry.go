//go:build linux

package wine

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
)

// machineGUID and hardwareGUID are placeholders in the template. Each host gets its own values.
const (
	machineGUID  = "00000000-7e3a-4d1e-8e00-77696e652d30"
	hardwareGUID = "00000000-7e3a-4d1e-8e00-77696e652d31"
)

// settings make Wine report Windows Server 2022 without a desktop. Wine's own value Version=win10 is omitted, because
// it pins the build number of the kernel to a client edition of Windows. A service has two minutes to connect to the
// service manager (Wine's default is ten seconds, Windows' default thirty), because the processors of the lab are
// shared with other work.
const settings = `REGEDIT4

[HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion]
"CurrentVersion"="10.0"
"CurrentMajorVersionNumber"=dword:0000000a
"CurrentMinorVersionNumber"=dword:00000000
"CurrentBuild"="20348"
"CurrentBuildNumber"="20348"
"UBR"=dword:00000a8c
"ProductName"="Windows Server 2022 Datacenter"
"EditionID"="ServerDatacenter"
"InstallationType"="Server Core"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control]
"ServicesPipeTimeout"=dword:0001d4c0

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\ProductOptions]
"ProductType"="ServerNT"

[HKEY_LOCAL_MACHINE\Software\Microsoft\Cryptography]
"MachineGuid"="` + machineGUID + `"

[HKEY_LOCAL_MACHINE\System\HardwareConfig]
"LastConfig"="{` + hardwareGUID + `}"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters]
"BootId"=dword:00000001

[HKEY_CURRENT_USER\Software\Wine\WineDbg]
"ShowCrashDialog"=dword:00000000
`

// personalize gives the registry of a new host its own identity. Wine must not be running on the host.
func personalize(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the registry: %w", err)
	}
	for _, id := range []string{machineGUID, hardwareGUID} {
		if bytes.Count(content, []byte(id)) != 1 {
			return fmt.Errorf("giving the host an identity: the registry of the template must contain %s exactly once",
				id)
		}
		content = bytes.Replace(content, []byte(id), []byte(newGUID()), 1)
	}
	if err = os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the registry: %w", err)
	}
	return nil
}

func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
