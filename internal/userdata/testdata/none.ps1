<powershell>
# Lets the operator of Windows nodes log in over SSH. It may run at every boot, because it changes only what differs.
# C:\Windows\Logs\windows-user-data.log lists what it did and what failed. The log contains no secret.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

<# The authorised public key, for scripts that search for it:
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q
#>
$publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q'
$log = Join-Path $env:SystemRoot 'Logs\windows-user-data.log'
$ssh = Join-Path $env:ProgramData 'ssh'
$restart = $false
$failed = 0

function Write-Log([string] $Text) {
    Add-Content -LiteralPath $log -Encoding Ascii -ErrorAction SilentlyContinue -Value ('{0:u} {1}' -f [DateTime]::UtcNow, $Text)
}

# If a step fails, the next step still runs.
function Invoke-Step([string] $Name, [scriptblock] $Step) {
    try {
        & $Step | Out-Null
        Write-Log ('{0}: as it must be' -f $Name)
    } catch {
        $script:failed++
        Write-Log ('{0}: {1}' -f $Name, $_.Exception.Message)
    }
}

# Use the SIDs of Administrators and SYSTEM, because their names depend on the language of Windows.
function New-Folder([string] $Path, [string] $Others) {
    if (Test-Path -LiteralPath $Path) { return }
    $rights = New-Object System.Security.AccessControl.DirectorySecurity
    $rights.SetSecurityDescriptorSddlForm('O:S-1-5-32-544D:PAI(A;OICI;FA;;;S-1-5-32-544)(A;OICI;FA;;;S-1-5-18)' + $Others)
    New-Item -ItemType Directory -Path $Path | Out-Null
    Set-Acl -LiteralPath $Path -AclObject $rights
}

# Set the rights before the content is written.
function Set-PrivateFile([string] $Path, [string] $Text) {
    $rights = New-Object System.Security.AccessControl.FileSecurity
    $rights.SetSecurityDescriptorSddlForm('O:S-1-5-32-544D:PAI(A;;FA;;;S-1-5-32-544)(A;;FA;;;S-1-5-18)')
    if (-not (Test-Path -LiteralPath $Path) -or [IO.File]::ReadAllText($Path) -cne $Text) {
        $new = $Path + '.new'
        New-Item -ItemType File -Path $new -Force | Out-Null
        Set-Acl -LiteralPath $new -AclObject $rights
        [IO.File]::WriteAllText($new, $Text)
        Move-Item -LiteralPath $new -Destination $Path -Force
    }
    Set-Acl -LiteralPath $Path -AclObject $rights
}

# Find the rule by its name, so that a second run doesn't create a second rule.
function Set-Rule([string] $Name, [string] $Title, [int] $Port, [string] $Edge) {
    $rule = @{
        Direction = 'Inbound'; Action = 'Allow'; Enabled = 'True'; Profile = 'Any'; Protocol = 'TCP'; LocalPort = $Port; EdgeTraversalPolicy = $Edge
    }
    if (Get-NetFirewallRule -Name $Name -ErrorAction SilentlyContinue) {
        Set-NetFirewallRule -Name $Name @rule
    } else {
        New-NetFirewallRule -Name $Name -DisplayName $Title @rule
    }
}

if ((Test-Path -LiteralPath $log) -and (Get-Item -LiteralPath $log).Length -gt 1000000) { Remove-Item -LiteralPath $log }

# On Azure, the cloud creates the administrator capi. On other clouds, the built-in account must be usable, whatever its name is. If the account is
# disabled, give it a random password that nobody knows, because Windows doesn't enable an account without a password.
Invoke-Step 'administrator' {
    if (Get-LocalUser -Name 'capi' -ErrorAction SilentlyContinue) { return }
    $administrator = Get-LocalUser | Where-Object { $_.SID.Value -like 'S-1-5-21-*-500' }
    if ($administrator.Enabled) { return }
    $noise = New-Object byte[] 40
    $generator = [Security.Cryptography.RandomNumberGenerator]::Create()
    $generator.GetBytes($noise)
    $password = New-Object Security.SecureString
    foreach ($character in [Convert]::ToBase64String($noise).ToCharArray()) { $password.AppendChar($character) }
    Set-LocalUser -SID $administrator.SID -Password $password -PasswordNeverExpires $true
    Enable-LocalUser -SID $administrator.SID
}

Invoke-Step 'OpenSSH' {
    for ($try = 1; $try -le 10; $try++) {
        if (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue) { return }
        try {
            Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0'
        } catch {
            Write-Log ('OpenSSH, try {0} of 10: {1}' -f $try, $_.Exception.Message)
            Start-Sleep -Seconds 5
        }
    }
    if (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue) { return }
    throw 'not installed. Where Windows Update can not be reached, use an image that has the OpenSSH server.'
}

# If a setting has several lines, sshd uses the first line, and a Match block overrides it. So delete all other lines.
Invoke-Step 'sshd_config' {
    New-Folder $ssh '(A;OICI;0x1200a9;;;S-1-5-11)'
    $program = (Get-ItemProperty -LiteralPath 'HKLM:\SYSTEM\CurrentControlSet\Services\sshd').ImagePath.Trim('"')
    $path = Join-Path $ssh 'sshd_config'
    if (-not (Test-Path -LiteralPath $path)) {
        Copy-Item -LiteralPath (Join-Path (Split-Path -Parent $program) 'sshd_config_default') -Destination $path
    }
    $before = [IO.File]::ReadAllText($path)
    $lines = @('PubkeyAuthentication yes', 'PasswordAuthentication no')
    $lines += @($before -split '\r?\n') -notmatch '^\s*(PubkeyAuthentication|PasswordAuthentication)\b'
    if (-not ($lines -match '^\s*AuthorizedKeysFile\s.*administrators_authorized_keys')) {
        $lines += 'Match Group administrators', '       AuthorizedKeysFile __PROGRAMDATA__/ssh/administrators_authorized_keys'
    }
    $after = $lines -join [Environment]::NewLine
    if ($after -cne $before) {
        [IO.File]::WriteAllText($path + '.new', $after)
        [IO.File]::Replace($path + '.new', $path, [NullString]::Value)
        $script:restart = $true
    }
}

# Keep all other keys, whether they come from the image or from an administrator.
Invoke-Step 'authorized key' {
    $path = Join-Path $ssh 'administrators_authorized_keys'
    $lines = @($publicKey)
    if (Test-Path -LiteralPath $path) { $lines += @([IO.File]::ReadAllText($path) -split '\r?\n') -cne '' -cne $publicKey }
    Set-PrivateFile $path (($lines -join [Environment]::NewLine) + [Environment]::NewLine)
}

Invoke-Step 'firewall' {
    Set-Rule 'ContainerLogsPort' 'ContainerLogsPort' 10250 'Allow'
    Set-Rule 'WindowsExporter' 'WindowsExporter' 9182 'Allow'
    Set-Rule 'OpenSSH-Server-In-TCP' 'OpenSSH SSH Server (sshd)' 22 'Block'
}

Invoke-Step 'sshd' {
    Set-Service -Name 'sshd' -StartupType Automatic
    if ($script:restart) {
        Restart-Service -Name 'sshd' -Force
    } else {
        Start-Service -Name 'sshd'
    }
}

if ($failed -gt 0) { exit 1 }
</powershell>
<persist>true</persist>
